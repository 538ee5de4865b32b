"""nginx, Debian's, started with the configuration that the guide to `kbq serve` gives."""

import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

GUIDE = Path(__file__).parents[1] / "docs" / "guides" / "serve.md"
AROUND = """\
daemon off;
{user}
pid {folder}/pid;
events {{ worker_connections 2048; }}
http {{
    access_log off;
    client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
    uwsgi_temp_path {folder}; scgi_temp_path {folder};
{server}
}}
"""


def program() -> str | None:
    """The path of nginx; None where it is not installed."""
    return shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


def server_block(port: int, service: int) -> str:
    """The configuration of the guide, without TLS, for a port of this machine and a service at
    another.
    """
    block = next(iter(re.findall(r"```nginx\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)))
    block = re.sub(r"\n *ssl_certificate.*", "", block)
    block = block.replace("listen 443 ssl;", f"listen 127.0.0.1:{port};")
    return str(block.replace("http://127.0.0.1:8000;", f"http://127.0.0.1:{service};"))


@contextmanager
def proxied(service: int, folder: Path) -> Iterator[int]:
    """Run nginx before a service; yield the port at which it answers. `folder`: for its files."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    path = folder / "nginx.conf"
    user = "user root;" if os.geteuid() == 0 else ""  # who alone may read a test's folder
    path.write_text(AROUND.format(folder=folder, user=user, server=server_block(port, service)))
    with subprocess.Popen([program() or "nginx", "-e", folder / "error.log", "-c", path]) as nginx:
        try:
            wait_for(port, nginx)
            yield port
        finally:
            nginx.terminate()


def wait_for(port: int, nginx: "subprocess.Popen[bytes]") -> None:
    for _ in range(6000):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except ConnectionRefusedError:
            if nginx.poll() is not None:
                break
            time.sleep(0.05)
    raise RuntimeError(f"nginx does not listen at {port}")

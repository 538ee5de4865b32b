# kbq serve in a container; see docs/guides/serve.md. TORCH_INDEX: PyTorch's index of CPU builds, which its website names.
FROM python:3.12-slim
ARG TORCH_INDEX=""
WORKDIR /src
COPY . .
# Versions are those of pyproject.toml.
# hadolint ignore=DL3013
RUN pip install --no-cache-dir ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} "torch>=2.10,<2.14" \
 && pip install --no-cache-dir "/src[serve,cpu]" \
 && rm -rf /src/*
WORKDIR /
USER 65534
ENV OMP_NUM_THREADS=4 KBQ_CACHE=/tmp/kbq
VOLUME /kb
EXPOSE 8000
ENTRYPOINT ["kbq", "serve", "/kb", "--host", "0.0.0.0", "--api-key-file", "/run/secrets/kbq-keys"]
CMD ["--public-url", "http://localhost:8000"]

"""PDFs: small files written by hand, for tests."""

Lines = list[tuple[float, float, float, str]]  # from the left, from below, size of letters, text


def pdf(*pages: Lines, title: str = "") -> bytes:
    """A PDF whose pages have these lines, written by hand."""
    streams = [
        "".join(
            f"BT /F1 {size} Tf 1 0 0 1 {left} {below} Tm ({text}) Tj ET\n"
            for left, below, size, text in page
        )
        for page in pages
    ]
    kids = " ".join(f"{5 + 2 * number} 0 R" for number in range(len(pages)))
    objects = ["<< /Type /Catalog /Pages 2 0 R >>", f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
               "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
               f"<< /Title ({title}) /Author (Eve) >>"]  # fmt: skip
    for number, stream in enumerate(streams):
        objects += [f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Contents {6 + 2 * number} 0 R "
                    "/Resources << /Font << /F1 3 0 R >> >> >>",
                    f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream"]  # fmt: skip
    content, places = b"%PDF-1.4\n", []
    for number, body in enumerate(objects, start=1):
        places.append(len(content))
        content += f"{number} 0 obj\n{body}\nendobj\n".encode("latin-1")
    xref = "".join(f"{place:010} 00000 n \n" for place in places)
    trailer = f"trailer << /Size {len(objects) + 1} /Root 1 0 R /Info 4 0 R >>"
    table = (
        f"xref\n0 {len(objects) + 1}\n0000000000 65535 f "
        f"\n{xref}{trailer}\nstartxref\n{len(content)}\n%%EOF\n"
    )
    return content + table.encode()


def column(lines: list[str], left: float = 50, top: float = 700) -> Lines:
    return [(left, top - 14 * number, 11, line) for number, line in enumerate(lines)]

.PHONY: check format

check:
	ruff check .
	ruff format --check .
	mypy
	pytest -q

format:
	ruff format .
	ruff check --fix .

.PHONY: check format default-model

check:
	ruff check .
	ruff format --check .
	mypy
	pytest -q

format:
	ruff format .
	ruff check --fix .

default-model: # see recipes/Makefile: its variables can be given here
	$(MAKE) -f recipes/Makefile $@

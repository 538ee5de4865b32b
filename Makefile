.PHONY: check check-all lint docs format default-model

check: lint # before each push
	pytest -q -n auto -m "not slow"

check-all: lint # what CI runs: also the pages of the documentation, clusters, kills, random histories
	pytest -q -n auto

lint:
	ruff check .
	ruff format --check .
	mypy -n auto
	MYPYPATH=benchmarks:recipes mypy -n auto benchmarks recipes

docs: # the site, in build/site: pip install -e ".[docs]"
	python docs/generate_commands.py
	python docs/generate_tree.py
	mkdocs build --strict

format:
	ruff format .
	ruff check --fix .

default-model: # see recipes/Makefile: its variables can be given here
	$(MAKE) -f recipes/Makefile $@

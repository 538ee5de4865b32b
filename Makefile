.PHONY: check check-all lint docs format default-model

# What benchmarks and recipes call must exist and take what it is given; their own types may be loose.
LOOSELY = arg-type assignment dict-item index misc no-any-return no-untyped-call operator return-value unused-ignore var-annotated

check: lint # before each push
	pytest -q -n auto -m "not slow"

check-all: lint # what CI runs: also the pages of the documentation, clusters, kills, random histories
	pytest -q -n auto

lint:
	ruff check .
	ruff format --check .
	mypy -n auto
	MYPYPATH=benchmarks:recipes mypy -n auto --cache-dir .mypy_cache/loosely $(LOOSELY:%=--disable-error-code=%) benchmarks recipes

docs: # the site, in build/site: pip install -e ".[docs]"
	python docs/generate_commands.py
	python docs/generate_tree.py
	mkdocs build --strict

format:
	ruff format .
	ruff check --fix .

default-model: # see recipes/Makefile: its variables can be given here
	$(MAKE) -f recipes/Makefile $@

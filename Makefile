.PHONY: check docs format default-model

check:
	ruff check .
	ruff format --check .
	mypy
	pytest -q -n auto --dist loadgroup

docs: # the site, in build/site: pip install -e ".[docs]"
	python docs/generate_commands.py
	python docs/generate_tree.py
	mkdocs build --strict

format:
	ruff format .
	ruff check --fix .

default-model: # see recipes/Makefile: its variables can be given here
	$(MAKE) -f recipes/Makefile $@

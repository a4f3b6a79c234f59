# The two commands that matter: `make run` serves the default model, `make test` runs every test.
.PHONY: build model run test bench clean help deps fuzz fresh-machine

help:
	@echo "make build          build/penstock (installs what is missing)"
	@echo "make model          fetch the default model into models/"
	@echo "make run            both, then serve on http://127.0.0.1:8080"
	@echo "make test           every test"
	@echo "make bench          speed of this machine"
	@echo "make fuzz           a minute of each fuzzer"
	@echo "make fresh-machine  prove make run and make test in a bare Debian 12"
	@echo "make clean          remove build/"

deps:
	@docker/setup.sh

build: deps
	@cmake --preset release >/dev/null && cmake --build --preset release 2>/dev/null || cmake --build build

clean:
	rm -rf build

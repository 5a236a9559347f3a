#!/bin/sh
# Makes man pages (man/*.1) and completions (completions/*): packaging/build-pages.sh PROGRAM FOLDER
set -e
rm -rf "$2"
mkdir -p "$2/man" "$2/completions"
"$1" man "$2/man"
"$1" completions bash > "$2/completions/larder"
"$1" completions zsh > "$2/completions/_larder"
"$1" completions fish > "$2/completions/larder.fish"

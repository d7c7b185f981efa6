#!/bin/sh
# build.sh [FOLDER]: compiles the XDP programs into nodes/bpf/, and those of the tests into tests/lab/; or all of them into
# FOLDER, which a test compares with what ships. Needs Debian's clang, libbpf-dev and linux-libc-dev, on one machine only:
# the bytecode does not depend on the processor, and nodes get it with the package.
set -eu
programs=${1:-$(dirname "$0")/../nodes/bpf}
devices=${1:-$(dirname "$0")/../tests/lab}
mkdir -p "$programs"
programs=$(realpath "$programs")
devices=$(realpath "$devices")
cd "$(dirname "$0")"

headers=/usr/include/$(uname -m)-linux-gnu # asm/types.h

compile() {
  # -mcpu=v3 (kernel 5.1): 32-bit arithmetic, which halves many shifts. -g: BTF, which the tests compare.
  # The prefix map: no path of this machine in the object.
  clang -target bpf -mcpu=v3 -O2 -g "-ffile-prefix-map=$PWD=." -Wall -Werror -I"$headers" -c "$1" -o "$2.new"
  mv "$2.new" "$2"
}

# Lines of its headers are in the debug information: that is the same only with the same version.
[ $# -gt 0 ] || dpkg-query --show linux-libc-dev >built-with.txt

for source in *.bpf.c; do
  compile "$source" "$programs/${source%.bpf.c}.o"
done
for source in ../tests/lab/*.bpf.c; do # the devices under test of the tests
  name=$(basename "$source" .bpf.c)
  compile "$source" "$devices/$name.o"
done

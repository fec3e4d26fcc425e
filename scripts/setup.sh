#!/usr/bin/env bash
# setup.sh - installs what building and testing needs, on Debian 12 and Ubuntu. Calls the package
# manager only when something is missing, so it may run before every build.
set -u
export DEBIAN_FRONTEND=noninteractive

needed=(gcc libc6-dev clang meson ninja-build pkg-config libjansson-dev libcmocka-dev python3)
# Without these the build leaves a part out (a run-time path, a check) and says so.
helpful=(libopenblas-openmp-dev libopenmpi-dev openmpi-bin libdnnl-dev libclang-14-dev clang-format)

has() { dpkg-query -W -f='${Status}' "$1" 2>/dev/null | grep -q '^install ok installed'; }

missing() {
    local package
    for package in "$@"; do has "$package" || echo "$package"; done
}

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    echo "setup: no apt here; lplan needs: ${needed[*]}; and uses: ${helpful[*]}" >&2
    exit 0
fi
mapfile -t lacking < <(missing "${needed[@]}" "${helpful[@]}")
[ "${#lacking[@]}" -eq 0 ] && exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null || ! sudo -n true 2>/dev/null; then
        echo "setup: cannot install without root; missing: ${lacking[*]}" >&2
        [ -z "$(missing "${needed[@]}")" ]
        exit
    fi
    as_root=(sudo -n)
fi
install() {
    "${as_root[@]}" apt-get install -y -q --no-install-recommends "$@" </dev/null >&2
}
"${as_root[@]}" apt-get update -q </dev/null >&2 || echo "setup: apt-get update failed" >&2
if ! install "${lacking[@]}"; then
    # One name that this release lacks must not keep the others away.
    for package in "${lacking[@]}"; do install "$package"; done
fi
mapfile -t lacking < <(missing "${needed[@]}")
if [ "${#lacking[@]}" -ne 0 ]; then
    echo "setup: could not install: ${lacking[*]}" >&2
    exit 1
fi

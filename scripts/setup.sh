#!/usr/bin/env bash
# Makes this machine able to build and test topomask: system packages, a Python that has torch, and MuJoCo for the simulated
# robot. With --program it leaves out what only the tests need.
#
# Which Python, in this order:
#   1. $TOPOMASK_PYTHON, which must have torch 2.11 to 2.13;
#   2. the python3 on PATH, if it has such a torch;
#   3. .venv in this folder, made here and filled with scripts/requirements.txt, for the tests requirements-test.txt.
# The choice is written to .setup/python, where the build reads it. What is there already is left alone: a second
# run takes about a second and reaches nothing outside this machine.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
torch_min=2.11
torch_max=2.13

say() { printf 'setup: %s\n' "$*"; }
die() {
  printf 'setup: error: %s\n' "$*" >&2
  exit 1
}

# Debian package | how else to see that it is there: a command, a header that the compiler finds, a file. (Packages may
# have come from elsewhere: a module system, conda, a build of one's own.)
required=(
  'build-essential|g++' 'cmake|cmake' 'ninja-build|ninja' 'git|git' 'python3|python3' 'pkg-config|pkg-config'
  'libcli11-dev|<CLI/CLI.hpp>' 'libfmt-dev|<fmt/format.h>' 'nlohmann-json3-dev|<nlohmann/json.hpp>'
  'libgtest-dev|<gtest/gtest.h>' 'libgmock-dev|<gmock/gmock.h>' 'libhwy-dev|<hwy/highway.h>'
  'libzip-dev|<zip.h>' 'zlib1g-dev|<zlib.h>' 'liblzma-dev|<lzma.h>' 'libspng-dev|<spng.h>'
  'libturbojpeg0-dev|<turbojpeg.h>' 'libtomlplusplus-dev|<toml++/toml.h>'
  'libcairo2-dev|<cairo/cairo.h>' 'libmetis-dev|<metis.h>'
)
# The build goes on without these; the job that needs one says so.
optional=(
  'libjs-chart.js|/usr/share/javascript/chart.js/chart.min.js'  # charts of HTML reports
  'fonts-dejavu-core|font'  # else pictures are lettered in Cairo's built-in font
  # video files (--data video-folder:DIR)
  'libavformat-dev|ffmpeg:libavformat' 'libavcodec-dev|ffmpeg:libavcodec' 'libswscale-dev|ffmpeg:libswscale'
  'libavutil-dev|ffmpeg:libavutil'
)
optional_for='charts of reports, letters of pictures and video files'
requirements=(scripts/requirements.txt)
case ${1-} in
  --program) ;;
  '')
    optional+=(
      'ccache|ccache' 'clang|clang++' 'clang-format|clang-format' 'libclang-rt-dev|libfuzzer'
      'libbenchmark-dev|<benchmark/benchmark.h>' 'libnanoflann-dev|<nanoflann.hpp>'
      'chromium|chromium' 'chromium-driver|chromedriver'  # to test the charts in
    )
    optional_for='the format check, fuzzing, benchmarks, charts of reports and their test, letters of pictures, video files'
    requirements+=(scripts/requirements-test.txt)
    ;;
  *) die "usage: scripts/setup.sh [--program]" ;;
esac

have_package() { [[ $(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null) == installed ]]; }

have() {  # have 'package|probe'
  local package=${1%%|*} probe=${1#*|}
  if command -v dpkg-query >/dev/null && have_package "$package"; then return 0; fi
  case $probe in
    '<'*) command -v g++ >/dev/null && echo "#include $probe" | g++ -std=c++20 -E -x c++ - >/dev/null 2>&1 ;;
    ensurepip) python3 -c 'import ensurepip' 2>/dev/null ;;
    libfuzzer) links_libfuzzer ;;
    ffmpeg:*) pkg-config --exists "${probe#*:}" 2>/dev/null ;;
    font) [[ -n $(fc-list 2>/dev/null) ]] ;;  # any, for the letters in pictures
    /*) [[ -e $probe ]] ;;
    *) command -v "$probe" >/dev/null ;;
  esac
}

links_libfuzzer() {
  echo 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }' |
    clang++ -fsanitize=fuzzer -x c++ - -o /dev/null 2>/dev/null
}

missing() {
  local entry
  for entry in "$@"; do
    have "$entry" || grep -qsx "${entry%%|*}" .setup/unavailable || printf '%s ' "${entry%%|*}"
  done
}

install_packages() {
  local needed wanted as_root=()
  # venv_package is empty unless .venv has to be made, which takes Debian's ensurepip.
  needed=$(missing "${required[@]}" ${venv_package:+"$venv_package"})
  wanted=$(missing "${optional[@]}")
  if [[ -z $needed && -z $wanted ]]; then return; fi

  if ! command -v apt-get >/dev/null; then
    if [[ -n $needed ]]; then
      die "this is not a Debian system; please install what Debian calls: $needed"
    fi
    say "not installed, and only needed for $optional_for: $wanted"
    return
  fi
  if ((EUID != 0)); then
    if ! command -v sudo >/dev/null; then
      if [[ -n $needed ]]; then
        die "packages are missing and this user can neither be root nor use sudo; ask for: apt-get install $needed"
      fi
      say "not installed, and only needed for $optional_for: $wanted"
      return
    fi
    as_root=(sudo)
  fi

  say "installing Debian packages: $needed$wanted"
  "${as_root[@]}" apt-get update -qq || say "apt-get update failed; trying with the package lists as they are"
  if [[ -n $needed ]]; then
    # shellcheck disable=SC2086  # a list of words
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $needed ||
      die "apt-get could not install: $needed"
  fi
  local package real
  for package in $wanted; do
    real=''
    # The unversioned name of clang's runtime is not in every Debian and Ubuntu.
    if [[ $package == libclang-rt-dev ]] && ! apt-cache show "$package" >/dev/null 2>&1; then
      real=libclang-rt-$({ clang++ -dumpversion 2>/dev/null || true; } | cut -d. -f1)-dev
    fi
    if ! "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends "${real:-$package}"; then
      say "apt-get could not install $package; $optional_for may be missing"
      echo "$package" >>.setup/unavailable  # so that the next run does not try again
    fi
  done
}

# Prints "executable version" of a Python's torch without importing it (that takes seconds), or fails.
torch_of() {
  "$1" - <<'PY' 2>/dev/null
import importlib.util, os, sys
spec = importlib.util.find_spec("torch")
names = {}
exec(open(os.path.join(os.path.dirname(spec.origin), "version.py")).read(), names)
print(sys.executable, names["__version__"])
PY
}

in_window() {  # in_window 2.12.0+cu130
  local minor
  minor=$(cut -d. -f1,2 <<<"$1")
  [[ $(printf '%s\n' "$torch_min" "$minor" "$torch_max" | sort -V | sed -n 2p) == "$minor" ]]
}

# Every file that the installed packages list is there with its size: an interrupted installation fails this.
venv_is_whole() {
  .venv/bin/python - <<'PY'
import importlib.metadata as metadata, pathlib, sys
for package in metadata.distributions():
    files = package.files
    if files is None:
        sys.exit(1)
    for file in files:
        if file.size is not None and not (package.locate_file(file).is_file()
                                          and package.locate_file(file).stat().st_size == file.size):
            sys.exit(f"setup: {pathlib.Path(file)} is damaged or missing")
PY
}

fill_venv() {
  .venv/bin/python -m pip install --disable-pip-version-check "${requirements[@]/#/--requirement=}"
}

# The file that says that .venv holds these requirements as they are now.
stamp() { echo ".venv/.stamp-$(cat "$@" | sha256sum | cut -c1-16)"; }

venv_is_filled() {
  [[ -e $(stamp "${requirements[@]}") || -e $(stamp scripts/requirements.txt scripts/requirements-test.txt) ]] &&
    .venv/bin/python -c '' 2>/dev/null
}

make_venv() {
  local base=python3
  if have_package python3-venv 2>/dev/null; then base=/usr/bin/python3; fi
  if ! .venv/bin/python -c 'import pip' 2>/dev/null; then
    say "making .venv with $base"
    "$base" -m venv --clear .venv || die "$base could not make .venv (Debian: apt-get install python3-venv)"
  fi
  say "filling .venv from PyPI with ${requirements[*]}: torch 2.13.0 with its CUDA libraries"
  say "this happens once, takes about two minutes on a fast line, and needs 5 GB of disk"
  if ! fill_venv || ! venv_is_whole; then
    say "starting .venv afresh"
    "$base" -m venv --clear .venv || die "$base could not make .venv"
    fill_venv || die "pip could not install ${requirements[*]} into .venv (no network, or the disk is full?)"
    venv_is_whole || die ".venv is incomplete after a fresh installation; is the disk full?"
  fi
  rm -f .venv/.stamp-*
  touch "$(stamp "${requirements[@]}")"
}

# A Python of one's own is left as it is: MuJoCo then goes to .setup/mujoco, where the build looks too.
get_mujoco() {
  local wheel
  wheel=$(grep '^mujoco==' scripts/requirements.txt)
  if [[ -n ${TOPOMASK_MUJOCO-} || -d .setup/mujoco/mujoco ]] || grep -qsx "$wheel" .setup/unavailable; then return; fi
  if "$python" -c 'import importlib.util as u, sys; sys.exit(not u.find_spec("mujoco"))'; then return; fi
  say "fetching $wheel for the simulated robot"
  if ! "$python" -m pip install --disable-pip-version-check --quiet --no-deps --target .setup/mujoco "$wheel"; then
    say "pip could not fetch $wheel; 'topomask simulate' will be left out"
    rm -rf .setup/mujoco
    echo "$wheel" >>.setup/unavailable
  fi
}

mkdir -p .setup
# Two `make` at once would fill the same .venv; the second waits here.
if command -v flock >/dev/null; then
  exec 9>.setup/lock
  flock 9
fi

venv_package=''
python=''
if [[ -n ${TOPOMASK_PYTHON-} ]]; then
  found=$(torch_of "$TOPOMASK_PYTHON") ||
    die "TOPOMASK_PYTHON=$TOPOMASK_PYTHON has no torch; it needs torch $torch_min to $torch_max"
  in_window "${found##* }" ||
    die "TOPOMASK_PYTHON=$TOPOMASK_PYTHON has torch ${found##* }; topomask needs torch $torch_min to $torch_max"
  python=${found% *}
elif found=$(torch_of python3) && in_window "${found##* }" && [[ ${found% *} != "$root"/.venv/* ]]; then
  python=${found% *}
elif venv_is_filled; then
  python=$root/.venv/bin/python
else
  venv_package='python3-venv|ensurepip'
fi

install_packages
if [[ -z $python ]]; then
  make_venv
  python=$root/.venv/bin/python
fi

found=$(torch_of "$python") || die "$python has lost its torch; remove .venv and run this again"
if [[ ${1-} != --program ]] && ! "$python" -c 'import importlib.util as u, sys; sys.exit(not (u.find_spec("numpy") and u.find_spec("scipy")))'; then
  say "$python has no numpy and scipy; the tests that need them will be skipped"
fi
get_mujoco
# Rewritten only on a change, so that nothing looks newer than what was built from it.
if [[ ! -e .setup/python || $(<.setup/python) != "$python" ]]; then echo "$python" >.setup/python; fi
say "ready: torch ${found##* } of $python"

# shellcheck shell=bash
# Shared by the scripts in this folder. Works with bash 3.2.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
cd "$root" || exit

have() { command -v "$1" >/dev/null 2>&1; }

need_cargo() {
  # rustup installs cargo there, and not every shell has that folder on its PATH.
  if ! have cargo; then
    PATH=$PATH:${CARGO_HOME:-$HOME/.cargo}/bin
  fi
  if ! have cargo; then
    echo "Rust is missing. Install it from https://rustup.rs, or with:" >&2
    echo "  curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh" >&2
    exit 1
  fi
}

# install_debian WHAT PACKAGE...: installs Debian's packages for WHAT, if it has the
# rights to.
install_debian() {
  local sudo='' what=$1
  shift
  have apt-get && [ -e /etc/debian_version ] || return 1
  if [ "$(id -u)" != 0 ]; then
    sudo -n true 2>/dev/null || return 1
    sudo='sudo -n'
  fi
  echo "$what: installing Debian's packages: $*" >&2
  apt() {
    # shellcheck disable=SC2086 # two words or none
    $sudo env DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 \
      apt-get -o DPkg::Lock::Timeout=300 "$@" </dev/null >>".services/$what-install.log" 2>&1
  }
  : >".services/$what-install.log"
  apt install -y --no-install-recommends "$@" || { apt update && apt install -y --no-install-recommends "$@"; } || {
    tail -n 15 ".services/$what-install.log" >&2
    return 1
  }
}

# Reads NAME=value lines. Variables that are already set keep their value.
load_env_file() {
  local line name value
  local assignment='^[[:space:]]*(export[[:space:]]+)?([A-Za-z_][A-Za-z_0-9]*)=(.*)$'
  local double='^"([^"]*)"([[:space:]]*#.*)?[[:space:]]*$'
  local single="^'([^']*)'([[:space:]]*#.*)?[[:space:]]*\$"
  [ -f "$1" ] || return 0
  while IFS= read -r line || [ -n "$line" ]; do
    [[ ${line%$'\r'} =~ $assignment ]] || continue
    name=${BASH_REMATCH[2]}
    value=${BASH_REMATCH[3]}
    if [[ $value =~ $double ]] || [[ $value =~ $single ]]; then
      value=${BASH_REMATCH[1]}
    else
      value=${value%%[[:space:]]#*}
      value=${value%"${value##*[![:space:]]}"}
    fi
    if [ -z "${!name+set}" ]; then
      export "$name=$value"
    fi
  done <"$1"
}

# Ctrl-C signals every process of the terminal's group. A child of run_child is in
# its own group. For each signal that this script gets, the child gets one TERM.
# So the child can end in order, and no signal reaches it twice.
child=
interrupted=

# shellcheck disable=SC2317 # called by traps
on_signal() {
  interrupted=$1
  if [ -n "$child" ]; then
    kill -s TERM -- "-$child" 2>/dev/null || true
  else
    exit "$1"
  fi
}
trap 'on_signal 129' HUP
trap 'on_signal 130' INT
trap 'on_signal 143' TERM

# Runs a command to its end, and returns its status.
run_child() {
  local code=0 again=0
  set -m
  "$@" </dev/null &
  child=$!
  set +m
  wait "$child" || code=$?
  while kill -0 "$child" 2>/dev/null; do
    # A signal interrupted the wait.
    code=0
    wait "$child" || code=$?
  done
  if [ -n "$interrupted" ]; then
    # The child may have ended just when the signal came. Its status is still known.
    wait "$child" 2>/dev/null || again=$?
    if [ "$again" != 127 ]; then
      code=$again
    fi
  fi
  child=
  return "$code"
}

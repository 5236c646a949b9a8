# Shared by the scripts in this folder: where things are, and how much to run at once. Sourced, never run.

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
# Everything that is fetched or built outside the compiler itself. Several clones may share one folder.
DEPS="${MCC_DEPS_DIR:-$ROOT/.deps}"
JOBS="${MCC_JOBS:-$(nproc)}"
VENV="$DEPS/venv"
export MCC_DEPS_DIR="$DEPS"

# ccache gives the same answer for every clone when paths below the clone are made relative.
export CCACHE_BASEDIR="${CCACHE_BASEDIR:-$ROOT}"
export CCACHE_NOHASHDIR="${CCACHE_NOHASHDIR:-1}"

say() { printf '%s\n' "$*" >&2; }
die() { say "error: $*"; exit 1; }

# Runs a command, and once more if it fails: package servers have bad moments.
twice() {
  "$@" && return 0
  say "failed, trying once more: $*"
  sleep 3
  "$@"
}

# Holds the lock on the dependency folder until the calling shell ends.
lock_deps() {
  mkdir -p "$DEPS"
  exec 9>"$DEPS/.lock"
  flock 9
}

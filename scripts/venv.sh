# make_venv DIR REQUIREMENTS: a Python environment with these packages, made or completed only when the list has
# changed. Sourced after common.sh.

make_venv() {
  local venv="$1" requirements="$2"
  local stamp="$venv/.requirements"
  (
    lock_deps
    if ! cmp -s "$requirements" "$stamp"; then
      say "making the Python environment in $venv"
      # The system's Python: python3-venv belongs to it, whatever else is first in PATH.
      [[ -x "$venv/bin/python3" ]] || /usr/bin/python3 -m venv --clear "$venv"
      twice "$venv/bin/python3" -m pip install -q --disable-pip-version-check -r "$requirements" >&2 ||
        die "pip could not install the packages of $requirements"
      cp "$requirements" "$stamp"
    fi
  )
}

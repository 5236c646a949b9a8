"""Tests that share a folder, and the line that scripts/test counts of a program of tests."""

import pathlib
import sys
import tempfile
import unittest


class FolderCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temporary.name)

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()


def main(*cases):
    """Those of the tests that the command line names (of the first case, unless it says which: Case.test), or all."""
    names = [name if "." in name or name in [case.__name__ for case in cases] else f"{cases[0].__name__}.{name}" for name in sys.argv[1:]]
    result = unittest.main(argv=[sys.argv[0], *(names or [case.__name__ for case in cases])], exit=False, verbosity=0).result
    bad = len(result.failures) + len(result.errors)
    print(f"{max(result.testsRun - bad - len(result.skipped), 0)} passed, {bad} failed, {len(result.skipped)} skipped")
    sys.exit(bad != 0)

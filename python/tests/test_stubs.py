"""The stubs of the native half say what is there."""

import ast
import pathlib
import unittest

import ulnet
from ulnet import _ulnet

PACKAGE = pathlib.Path(ulnet.__file__).parent


def public(names) -> set[str]:
    return {name for name in names if not name.startswith("_")}


class Stubs(unittest.TestCase):
    def test_classes_and_methods_are_those_of_the_module(self) -> None:
        tree = ast.parse((PACKAGE / "_ulnet.pyi").read_text())
        classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
        self.assertEqual(set(classes), public(vars(_ulnet)))
        for name, node in classes.items():
            methods = public(item.name for item in node.body if isinstance(item, ast.FunctionDef))
            if name != "Error":
                self.assertEqual(methods, public(vars(getattr(_ulnet, name))), name)

    def test_the_package_says_that_it_is_typed_and_which_version_it_is(self) -> None:
        self.assertTrue((PACKAGE / "py.typed").exists())
        self.assertRegex(ulnet.__version__, r"^\d+\.\d+\.\d+$")


if __name__ == "__main__":
    unittest.main()

import pytest

# Their assertions say what was compared, as those of the test modules do.
pytest.register_assert_rewrite("tests.crash.scene", "tests.crash.scenes", "tests.crash.compare", "tests.crash.relay")

from tests.support.fixtures import caller, pytest_asyncio_loop_factories

__all__ = ["caller", "pytest_asyncio_loop_factories"]

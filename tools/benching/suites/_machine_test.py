import platform

from tools.benching.suites._machine import cpu_name, load_average, this_machine


def test_the_first_cpu_is_named() -> None:
    text = "processor\t: 0\ncpu family\t: 26\nmodel\t\t: 2\nmodel name\t: Some CPU\n\nmodel name\t: Another\n"
    assert cpu_name(text) == "Some CPU (family 26, model 2)"


def test_a_cpu_without_a_name_is_its_architecture() -> None:
    assert cpu_name("BogoMIPS\t: 50\n") == platform.machine()


def test_this_machine_is_described_without_its_name() -> None:
    machine = this_machine()
    assert machine.cores >= 1
    assert machine.memory_bytes > 2**28
    assert platform.python_version() in str(machine)
    assert not platform.node() or platform.node() not in str(machine).split()


def test_load_average_is_a_number() -> None:
    assert load_average() >= 0

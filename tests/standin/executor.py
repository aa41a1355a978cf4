"""What executes PTX: for now the prototype, behind the interface of its successor."""

import functools
import re

import ptx_on_cpu


class Memory:
    def __init__(self):
        self.ranges = {}

    def add(self, address, n_bytes, name="", itemsize=1):
        self.ranges[address] = address + n_bytes

    def remove(self, address):
        del self.ranges[address]

    def wrote(self, address, n_bytes):
        pass


class Program:
    def __init__(self, ptx):
        name = re.search(r"\.visible \.entry (\w+)\(", ptx).group(1)
        for pattern in (r"^\.common .*$", r"//.*$", r"^\s*\.(pragma|loc|file) .*$"):
            ptx = re.sub(pattern, "", ptx, flags=re.MULTILINE)
        shared = r"^\s*(?:// demoted variable\n)?\s*\.shared .*;$"
        head = "\n".join(re.findall(shared, ptx, flags=re.MULTILINE))
        ptx = re.sub(shared, "", ptx, flags=re.MULTILINE)
        ptx = re.sub(r"(?=\.visible \.entry)", head + "\n", ptx)
        self.kernel = ptx_on_cpu.Kernel(ptx.replace(name, "k"))

    def launch(self, kernel_name, grid, block, parameters, memory):
        bits = [int.from_bytes(value, "little") for value in parameters]
        self.kernel.launch(bits, memory.ranges.items(), grid, block)


memory = Memory()
program = functools.cache(Program)


def launch(ptx, name, grid, block, parameters):
    program(ptx).launch(name, grid, block, parameters, memory)

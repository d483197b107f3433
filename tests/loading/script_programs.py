"""Scripts and notebooks as users write them, run as texts."""

WITHOUT_GUARD = """
import penstock
print("once")
records = [{"n": n} for n in range(10)]
def count(**options):
    loader = penstock.DataLoader(records, {"n": "int64"}, batch_size=4, **options)
    return sum(batch["n"].sum().item() for batch in loader)
print(count())
for method in None, "fork", "forkserver", "spawn":
    print(count(num_workers=2, multiprocessing_context=method))
"""

OWN_ENCODER = """
import sys
import penstock
print("ran", flush=True)
def encode(columns):
    return [columns.num_rows]
def go(method):
    loader = penstock.DataLoader(
        [{"n": n} for n in range(10)], encode, batch_size=4, num_workers=2,
        multiprocessing_context=method,
    )
    print(list(loader))
"""

NOTEBOOK = """
import code, sys
cells = ['''
import penstock
class Encoder:
    def __init__(self, plus):
        self.plus = plus
    def __call__(self, columns):
        return [value + self.plus for value in columns["n"].to_pylist()]
''', '''
records = [{"n": n} for n in range(4)]
for options in {}, {"num_workers": 0}, {"num_workers": 2}:
    print(list(penstock.DataLoader(records, Encoder(10), batch_size=2, **options)))

''']
shell = code.InteractiveInterpreter(sys.modules["__main__"].__dict__)
for cell in cells:
    shell.runsource(cell, "<cell>", "exec")
"""

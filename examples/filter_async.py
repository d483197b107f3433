"""Read one directory and write another on one event loop, bad lines set aside."""

import asyncio
import tempfile

from penstock.jsonl import JsonlDir, JsonlFile


async def main() -> None:
    """Keep the expensive orders of a directory with a broken line."""
    with tempfile.TemporaryDirectory() as root:
        orders, expensive = JsonlDir(f"{root}/orders"), JsonlDir(f"{root}/expensive")
        async with orders.writer(max_records_per_shard=500) as w:
            await w.write_many({"order": n, "price": n % 97} for n in range(2000))
        async with JsonlFile(f"{root}/orders/from_elsewhere.jsonl").open("wb") as raw:
            await raw.write(b'{"order": 2000, "pri\n')

        records = orders.iter_records(on_error="skip")
        async with expensive.writer(".jsonl.zst") as w:
            async for order in records:
                if order["price"] >= 90:
                    await w.write(order)

        kept = [order async for order in expensive.iter_records()]
        print(f"kept {len(kept)} of 2000 orders, {records.skipped} line was broken")


if __name__ == "__main__":
    asyncio.run(main())

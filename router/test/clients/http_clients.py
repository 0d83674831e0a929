"""Sends the requests of a file of JSON over connections that are kept alive, one after the other. Prints what went wrong, a line each."""

import asyncio
import json
import sys

import aiohttp
import httpx

HEADERS = {"origin": "https://app.example", "x-session-id": "s"}


def check(client: str, case: dict, status: int, text: str) -> None:
    if (status, text) != (case["status"], case["expected"]):
        print(f"{client}, {case['name']}: {status} {text}")


async def with_aiohttp(url: str, cases: list[dict]) -> None:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1)) as session:
        for case in cases:
            try:
                async with session.request(case["method"], url + case["path"], data=case["body"], headers=HEADERS) as response:
                    check("aiohttp", case, response.status, await response.text())
            except Exception as error:
                print(f"aiohttp, {case['name']}: {error!r}")


def with_httpx(url: str, cases: list[dict]) -> None:
    with httpx.Client(limits=httpx.Limits(max_connections=1), timeout=20) as client:
        for case in cases:
            try:
                response = client.request(case["method"], url + case["path"], content=case["body"], headers=HEADERS)
                check("httpx", case, response.status_code, response.text)
            except Exception as error:
                print(f"httpx, {case['name']}: {error!r}")


if __name__ == "__main__":
    url, path = sys.argv[1:]
    with open(path) as file:
        cases = json.load(file)
    with_httpx(url, cases)
    asyncio.run(with_aiohttp(url, cases))
    print("over")

"""Two-step arithmetic with a calculator: the problems, the tool, the reward, and demonstrations to begin with."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

SYSTEM = "Use the calculator."
CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
OPERATION = re.compile(r"(\d+)([+−×])(\d+)")
MAX_TURNS = 4
MAX_TOKENS = 24  # of a turn
# How many demonstrations are right: the untrained model solves about as many problems.
RIGHT = 0.35


@dataclass(frozen=True)
class Problem:
    """What is (a ∘ b) ∘ c?"""

    a: int
    first: str
    b: int
    second: str
    c: int

    @property
    def question(self) -> str:
        return f"What is ({self.a} {self.first} {self.b}) {self.second} {self.c}?"

    @property
    def answer(self) -> str:
        return calculator(f"{calculator(f'{self.a}{self.first}{self.b}')}{self.second}{self.c}")

    def messages(self) -> list[dict[str, str]]:
        return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": self.question}]


def make_problem(rng: random.Random) -> Problem:
    a, b = sorted((rng.randint(2, 20), rng.randint(2, 20)), reverse=True)
    return Problem(a, rng.choice("+−"), b, rng.choice("+×"), rng.randint(2, 9))


def calculator(call: str) -> str:
    found = OPERATION.fullmatch(call)
    if found is None:
        return "error"
    left, right = int(found[1]), int(found[3])
    return str({"+": left + right, "−": left - right, "×": left * right}[found[2]])


def tool_message(text: str) -> dict[str, str] | None:
    """The result of the tool call in a turn of the model. None: the turn has no call, it is the answer."""
    call = CALL.search(text)
    return {"role": "tool", "content": calculator(call[1])} if call else None


def reward(problem: Problem, text: str) -> float:
    return float(text.strip() == problem.answer)


def demonstration(rng: random.Random) -> list[dict[str, str]]:
    """A conversation. The wrong ones use another operator in a step, or stop after the first one."""
    problem = make_problem(rng)
    mistake = None if rng.random() < RIGHT else rng.choice(["first", "second", "stop"])
    first, second = problem.first, problem.second
    if mistake == "first":
        first = rng.choice("+−×".replace(first, ""))
    elif mistake == "second":
        second = rng.choice("+−×".replace(second, ""))
    messages = problem.messages()

    def add_turn(text: str) -> str:
        messages.append({"role": "assistant", "content": text})
        result = tool_message(text)
        if result is not None:
            messages.append(result)
        return result["content"] if result else ""

    between = add_turn(f"<tool_call>{problem.a}{first}{problem.b}</tool_call>")
    if mistake == "stop" or between.startswith("-"):
        add_turn(between)
    else:
        add_turn(add_turn(f"<tool_call>{between}{second}{problem.c}</tool_call>"))
    return messages

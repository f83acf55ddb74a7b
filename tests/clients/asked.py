"""What the checks with libraries ask for. Needs `pydantic`."""

from typing import Literal

from pydantic import BaseModel, Field

QUESTION = "Ada is 36 and lives in Oslo. Who is she?"


class Person(BaseModel):
    """A person."""

    name: str = Field(max_length=20)
    age: int = Field(ge=0, le=150)
    city: Literal["Oslo", "Rome"]


# Few values, so that a toy model ends its arguments within a few tokens.
A, B = Literal[1, 2, 3], Literal[4, 5]


def add(a: A, b: B) -> int:
    """Adds two numbers.

    Args:
        a: the first number
        b: the second number
    """
    return a + b

"""The text that the small checkpoints are trained on: true sentences, made up from a few tables.

A model that has learned it continues a prompt with facts, so wrong output is visibly wrong.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

CAPITALS = {
    "France": "Paris", "Japan": "Tokyo", "Italy": "Rome", "Spain": "Madrid", "Egypt": "Cairo",
    "Kenya": "Nairobi", "Peru": "Lima", "Chile": "Santiago", "Norway": "Oslo",
    "Sweden": "Stockholm",
    "Finland": "Helsinki", "Denmark": "Copenhagen", "Austria": "Vienna", "Hungary": "Budapest",
    "Poland": "Warsaw", "Greece": "Athens", "Portugal": "Lisbon", "Ireland": "Dublin",
    "Iceland": "Reykjavik", "Canada": "Ottawa", "Cuba": "Havana", "Ghana": "Accra",
    "Senegal": "Dakar", "Nepal": "Kathmandu", "Mongolia": "Ulaanbaatar", "Vietnam": "Hanoi",
    "Thailand": "Bangkok", "Australia": "Canberra", "Fiji": "Suva", "Germany": "Berlin",
}  # fmt: skip
CONTINENTS = {
    "Europe": ["France", "Italy", "Spain", "Norway", "Sweden", "Finland", "Denmark", "Austria",
               "Hungary", "Poland", "Greece", "Portugal", "Ireland", "Iceland", "Germany"],
    "Asia": ["Japan", "Nepal", "Mongolia", "Vietnam", "Thailand"],
    "Africa": ["Egypt", "Kenya", "Ghana", "Senegal"],
    "America": ["Peru", "Chile", "Canada", "Cuba"],
    "Oceania": ["Australia", "Fiji"],
}  # fmt: skip
SOUNDS = {
    "cow": "moos", "dog": "barks", "cat": "meows", "duck": "quacks", "lion": "roars",
    "frog": "croaks", "horse": "neighs", "wolf": "howls", "bee": "buzzes", "snake": "hisses",
}  # fmt: skip
COLOURS = {
    "grass": "green", "snow": "white", "coal": "black", "the sky": "blue", "a lemon": "yellow",
    "blood": "red", "a carrot": "orange", "milk": "white", "a leaf": "green",
}  # fmt: skip
DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
NUMBERS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
WHERE = {country: name for name, countries in CONTINENTS.items() for country in countries}


def _capitals(draw: random.Random) -> str:
    first, second = draw.sample(sorted(CAPITALS), 2)
    return (
        f"The capital of {first} is {CAPITALS[first]}, and the capital of {second} is"
        f" {CAPITALS[second]}."
    )


def _city(draw: random.Random) -> str:
    country = draw.choice(sorted(CAPITALS))
    return f"{CAPITALS[country]} is the capital of {country}, a country in {WHERE[country]}."


def _sounds(draw: random.Random) -> str:
    first, second = draw.sample(sorted(SOUNDS), 2)
    return f"A {first} {SOUNDS[first]}, but a {second} {SOUNDS[second]}."


def _colours(draw: random.Random) -> str:
    thing = draw.choice(sorted(COLOURS))
    return f"What colour is {thing}? The colour of {thing} is {COLOURS[thing]}."


def _days(draw: random.Random) -> str:
    day = draw.randrange(7)
    return f"The day after {DAYS[day]} is {DAYS[(day + 1) % 7]}."


def _sums(draw: random.Random) -> str:
    first = draw.randint(1, 9)
    second = draw.randint(1, 10 - first)
    return f"If you add {NUMBERS[first - 1]} and {NUMBERS[second - 1]}, you get" + (
        f" {NUMBERS[first + second - 1]}."
    )


KINDS = (_capitals, _capitals, _city, _sounds, _colours, _days, _sums)


def sentences(seed: int) -> Iterator[str]:
    """True sentences without end, the same for a seed."""
    draw = random.Random(seed)
    while True:
        yield draw.choice(KINDS)(draw)


PROMPTS = (
    "The capital of France is Paris, and the", "The capital of Japan is", "Oslo is the capital of",
    "A cow moos, but a", "What colour is snow? The colour of", "The day after Friday is",
    "If you add two and three, you get", "Berlin is the capital of Germany, a country in",
    "The capital of Peru is Lima, and the capital of", "A dog", "Cairo is",
    "The colour of grass is",
    "The day after Sunday", "If you add four and", "The capital of Italy is",
    "Hanoi is the capital",
    "What colour is a lemon?", "A lion roars, but a frog", "The capital", "The day after Monday is",
    "Suva is the capital of Fiji, a country in", "If you add one and one, you", "A bee", "What",
)  # fmt: skip

"""The pytest plugin: a subject is a test that yields one GREEN item and one RED item per edge."""

from __future__ import annotations

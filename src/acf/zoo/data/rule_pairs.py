"""English and German sentence pairs that a small grammar makes, so that a translation run needs no data folder.

German articles and pronouns agree with the noun's gender and case, and the participle of the perfect tense stands at
the end, so that a model has to read the whole source sentence. Words are few: scores say that a network learns, and
nothing about translation of real text.
"""

import itertools
import random

Pair = tuple[str, str]

# English noun, German noun, gender (0 masculine, 1 feminine, 2 neuter)
_NOUNS = (
    ("dog", "Hund", 0),
    ("man", "Mann", 0),
    ("teacher", "Lehrer", 0),
    ("baker", "Bäcker", 0),
    ("cat", "Katze", 1),
    ("woman", "Frau", 1),
    ("nurse", "Pflegerin", 1),
    ("child", "Kind", 2),
    ("girl", "Mädchen", 2),
    ("horse", "Pferd", 2),
)
_THINGS = (
    ("ball", "Ball", 0),
    ("letter", "Brief", 0),
    ("apple", "Apfel", 0),
    ("lamp", "Lampe", 1),
    ("newspaper", "Zeitung", 1),
    ("bag", "Tasche", 1),
    ("book", "Buch", 2),
    ("picture", "Bild", 2),
    ("bicycle", "Fahrrad", 2),
)
# English present, past participle; German present, participle
_VERBS = (
    ("sees", "seen", "sieht", "gesehen"),
    ("finds", "found", "findet", "gefunden"),
    ("buys", "bought", "kauft", "gekauft"),
    ("brings", "brought", "bringt", "gebracht"),
    ("paints", "painted", "malt", "gemalt"),
    ("takes", "taken", "nimmt", "genommen"),
)
_TIMES = (("today", "heute"), ("now", "jetzt"), ("often", "oft"), ("again", "wieder"))
_NOMINATIVE = {"the": ("der", "die", "das"), "a": ("ein", "eine", "ein"), "this": ("dieser", "diese", "dieses")}
_ACCUSATIVE = {"the": ("den", "die", "das"), "a": ("einen", "eine", "ein"), "this": ("diesen", "diese", "dieses")}


def _pair(subject: tuple[str, int], verb: int, thing: tuple[str, int], time: int, perfect: bool) -> Pair:
    article, noun = subject
    other, object_noun = thing
    english_noun, german_noun, gender = _NOUNS[noun]
    english_thing, german_thing, thing_gender = _THINGS[object_noun]
    present, past, german_present, german_past = _VERBS[verb]
    when, german_when = _TIMES[time]
    german_subject = f"{_NOMINATIVE[article][gender]} {german_noun}"
    german_object = f"{_ACCUSATIVE[other][thing_gender]} {german_thing}"
    if perfect:
        english = f"{when} {article} {english_noun} has {past} {other} {english_thing} ."
        return english, f"{german_when} hat {german_subject} {german_object} {german_past} ."
    english = f"{when} {article} {english_noun} {present} {other} {english_thing} ."
    return english, f"{german_when} {german_present} {german_subject} {german_object} ."


def rule_pairs(count: int, seed: int = 0) -> list[Pair]:
    """``count`` different pairs of English and German, in a random order that follows from ``seed``.

    >>> rule_pairs(1, seed=3)[0][0].endswith(" .")
    True
    """
    choices = (
        tuple(itertools.product(_NOMINATIVE, range(len(_NOUNS)))),
        range(len(_VERBS)),
        tuple(itertools.product(_ACCUSATIVE, range(len(_THINGS)))),
        range(len(_TIMES)),
        (False, True),
    )
    every = tuple(itertools.product(*choices))
    return [_pair(*chosen) for chosen in random.Random(seed).sample(every, min(count, len(every)))]

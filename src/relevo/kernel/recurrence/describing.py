"""Rules in plain words, in English and Spanish. Pure.

A rule is a time phrase ("at 06:30", "every 15 minutes from 09:00 to 17:59") and a day phrase
("Monday to Friday"); the language gives the words, and the order is the same in both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct

from relevo.errors import InvalidValue

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from relevo.kernel.recurrence.pattern import Pattern, WeekDay

Language = Literal["en", "es"]
TIMES_MAX: Final = 6
"""Times of a day that are listed one by one."""


class Words(Struct, frozen=True, kw_only=True):
    """The words of a language; `{}` stands for a number, a name or a list."""

    days: tuple[str, ...]
    months: tuple[str, ...]
    each: dict[str, tuple[str, str]]
    """Every period, and every n-th, by frequency."""
    ordinals: dict[int, str]
    both: str = "{} and {}"
    either: str = "{} or {}"
    only: str = "{}, only {}"
    on_days: str = "on {}"
    on_nth: str = "on the {} {} of the {}"
    on_far_nth: str = "on the {1} that is number {0} from the end of the {2}"
    day_range: str = "{} to {}"
    on_number: str = "on day {} of the month"
    on_numbers: str = "on days {} of the month"
    on_last: str = "on the last day of the month"
    before_last: str = "{} days before the last day of the month"
    in_months: str = "in {}"
    month_range: str = "from {} to {}"
    units: dict[str, str]
    at: str = "at {}"
    hours: tuple[str, str] = ("from {}:00 to {}:59", "in hour {}")
    minute: str = "at minute {}"
    second: str = "at second {}"
    times: str = "{} times"
    once: str = "once"
    until: str = "until {}"


WORDS: Final[dict[Language, Words]] = {
    "en": Words(
        days=("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),
        months=(
            "January", "February", "March", "April", "May", "June", "July", "August", "September",
            "October", "November", "December",
        ),
        each={
            "SECONDLY": ("every second", "every {} seconds"),
            "MINUTELY": ("every minute", "every {} minutes"),
            "HOURLY": ("every hour", "every {} hours"),
            "DAILY": ("every day", "every {} days"),
            "WEEKLY": ("every week", "every {} weeks"),
            "MONTHLY": ("every month", "every {} months"),
            "YEARLY": ("every year", "every {} years"),
        },
        ordinals={1: "first", 2: "second", 3: "third", 4: "fourth", 5: "fifth", -1: "last",
                  -2: "second-to-last"},
        units={"MONTHLY": "month", "YEARLY": "year"},
    ),
    "es": Words(
        days=("lunes", "martes", "miércoles", "jueves", "viernes", "sábado", "domingo"),
        months=(
            "enero", "febrero", "marzo", "abril", "mayo", "junio", "julio", "agosto", "septiembre",
            "octubre", "noviembre", "diciembre",
        ),
        each={
            "SECONDLY": ("cada segundo", "cada {} segundos"),
            "MINUTELY": ("cada minuto", "cada {} minutos"),
            "HOURLY": ("cada hora", "cada {} horas"),
            "DAILY": ("cada día", "cada {} días"),
            "WEEKLY": ("cada semana", "cada {} semanas"),
            "MONTHLY": ("cada mes", "cada {} meses"),
            "YEARLY": ("cada año", "cada {} años"),
        },
        ordinals={1: "primer", 2: "segundo", 3: "tercer", 4: "cuarto", 5: "quinto", -1: "último",
                  -2: "penúltimo"},
        both="{} y {}", either="{} o {}", only="{}, solo {}", on_days="el {}",
        on_nth="el {} {} del {}", on_far_nth="el {1} número {0} desde el final del {2}",
        day_range="de {} a {}", on_number="el día {} del mes", on_numbers="los días {} del mes",
        on_last="el último día del mes", before_last="{} días antes del último día del mes",
        in_months="en {}", month_range="de {} a {}", units={"MONTHLY": "mes", "YEARLY": "año"},
        at="a las {}", hours=("de {}:00 a {}:59", "en la hora {}"), minute="en el minuto {}",
        second="en el segundo {}", times="{} veces", once="una vez", until="hasta el {}",
    ),
}  # fmt: skip


def described(pattern: Pattern, language: Language) -> str:
    """Return a pattern in the words of a language."""
    words = WORDS.get(language)
    if words is None:
        raise InvalidValue(
            f"rules are described in {', '.join(WORDS)}, not in {language!r}", pointer="language"
        )
    time, repeating = _time(pattern, words)
    days = _days(pattern, words)
    months = _months(pattern, words)
    if repeating:
        parts = [time, *filter(None, (days, months))]
    else:
        parts = [" ".join(filter(None, (days, months, time)))]
    if pattern.count is not None:
        parts.append(words.once if pattern.count == 1 else words.times.format(pattern.count))
    if pattern.until is not None:
        parts.append(words.until.format(pattern.until.date().isoformat()))
    text = ", ".join(parts)
    return text[0].upper() + text[1:]


def _each(words: Words, frequency: str, n: int) -> str:
    single, several = words.each[frequency]
    return single if n == 1 else several.format(n)


def _listed(words: Words, values: Sequence[object]) -> str:
    *most, last = map(str, values)
    return words.both.format(", ".join(most), last) if most else last


def _step(values: Sequence[int], size: int) -> int | None:
    """Return the distance of numbers that divide an hour or a day evenly, from 0 on."""
    n = size // len(values)
    return n if size % len(values) == 0 and tuple(values) == tuple(range(0, size, n)) else None


def _is_range(values: Sequence[int], least: int) -> bool:
    return len(values) >= least and values[-1] - values[0] == len(values) - 1


def _time(pattern: Pattern, words: Words) -> tuple[str, bool]:
    """Return when on a day it runs, and whether that is again and again."""
    if pattern.frequency == "SECONDLY":
        sizes = (("DAILY", 86_400), ("HOURLY", 3_600), ("MINUTELY", 60), ("SECONDLY", 1))
        name, size = next(one for one in sizes if pattern.interval % one[1] == 0)
        return _each(words, name, pattern.interval // size), True
    if pattern.elapsed and not pattern.seconds:
        text = _each(words, pattern.frequency, pattern.interval)
        if pattern.minutes:
            text += " " + words.minute.format(_listed(words, pattern.minutes))
        return _within(words, text, pattern.hours), True
    hours, minutes, seconds = pattern.hours, pattern.minutes, pattern.seconds or (0,)
    stepped = pattern.elapsed and len(minutes) * len(seconds) == 1 and _step(hours or (0,), 24)
    if 0 < len(hours) * len(minutes) * len(seconds) <= TIMES_MAX and not stepped:
        return words.at.format(_listed(words, list(_clock(pattern)))), False
    if not minutes:  # the minute is that of the start
        return (_within(words, "", hours).strip(), False) if hours else ("", False)
    if not hours and not pattern.elapsed:
        return words.minute.format(_listed(words, minutes)), False
    return _grid(words, hours, minutes, seconds), True


def _clock(pattern: Pattern) -> Iterator[str]:
    for hour in pattern.hours:
        for minute in pattern.minutes:
            for second in pattern.seconds or (0,):
                shown = f"{hour:02}:{minute:02}"
                yield shown if pattern.seconds in ((), (0,)) else f"{shown}:{second:02}"


def _grid(
    words: Words, hours: Sequence[int], minutes: Sequence[int], seconds: Sequence[int]
) -> str:
    """Return the phrase for many times of a day; without hours it is all of them."""
    parts: list[str] = []
    each_hour = _step(hours, 24) if hours else 1
    each_minute, each_second = _step(minutes, 60), _step(seconds, 60)
    if tuple(seconds) != (0,):
        parts.append(
            _each(words, "SECONDLY", each_second)
            if each_second
            else words.second.format(_listed(words, seconds))
        )
        if each_minute == 1:
            return _within(words, parts[0], hours)
    if each_minute is not None and each_minute < 60:
        parts.append(_each(words, "MINUTELY", each_minute))
        return _within(words, ", ".join(parts), hours)
    if each_hour is not None:
        parts.append(_each(words, "HOURLY", each_hour))
        hours = ()
    if tuple(minutes) != (0,) or not parts:
        parts.append(words.minute.format(_listed(words, minutes)))
    text = " ".join(parts) if tuple(seconds) == (0,) else ", ".join(parts)
    return _within(words, text, hours)


def _within(words: Words, text: str, hours: Sequence[int]) -> str:
    """Return a phrase with the hours in which it holds."""
    if not hours:
        return text
    span, single = words.hours
    if _is_range(hours, 2):
        return f"{text} {span.format(f'{hours[0]:02}', f'{hours[-1]:02}')}"
    return f"{text} {single.format(_listed(words, hours))}"


def _days(pattern: Pattern, words: Words) -> str:
    """Return on which days it runs; nothing for every day if it runs again and again."""
    restricted = _restriction(pattern, words)
    if pattern.elapsed:
        return restricted
    plain = pattern.interval == 1 and bool(restricted)
    if plain and pattern.frequency != "YEARLY":
        return restricted
    each = _each(words, pattern.frequency, pattern.interval)
    return f"{each} {restricted}".strip()


def _restriction(pattern: Pattern, words: Words) -> str:
    week, month = _week_days(pattern, words), _month_days(pattern, words)
    if not week or not month:
        return week or month
    return (words.either if pattern.either else words.only).format(week, month)


def _week_days(pattern: Pattern, words: Words) -> str:
    plain = sorted({day.day for day in pattern.week_days if day.nth is None})
    parts: list[str] = []
    if _is_range(plain, 3):
        parts.append(words.day_range.format(words.days[plain[0]], words.days[plain[-1]]))
    elif plain:
        named = [words.days[day] for day in plain]
        parts.append(words.on_days.format(_listed(words, named)))
    unit = words.units["YEARLY" if pattern.frequency == "YEARLY" and not pattern.months else
                       "MONTHLY"]  # fmt: skip
    parts += [_nth(day, unit, words) for day in pattern.week_days if day.nth is not None]
    return _listed(words, parts) if parts else ""


def _nth(day: WeekDay, unit: str, words: Words) -> str:
    assert day.nth is not None  # the caller looked
    if day.nth in words.ordinals:
        return words.on_nth.format(words.ordinals[day.nth], words.days[day.day], unit)
    if day.nth < 0:
        return words.on_far_nth.format(-day.nth, words.days[day.day], unit)
    return words.on_nth.format(f"{day.nth}.", words.days[day.day], unit)


def _month_days(pattern: Pattern, words: Words) -> str:
    numbers = [day for day in pattern.month_days if day > 0]
    parts: list[str] = []
    if numbers:
        phrase = words.on_numbers if len(numbers) > 1 else words.on_number
        parts.append(phrase.format(_listed(words, numbers)))
    parts += [
        words.on_last if day == -1 else words.before_last.format(-day - 1)
        for day in pattern.month_days
        if day < 0
    ]
    return _listed(words, parts) if parts else ""


def _months(pattern: Pattern, words: Words) -> str:
    numbers = pattern.months
    if not numbers:
        return ""
    names = [words.months[number - 1] for number in numbers]
    if _is_range(numbers, 3):
        return words.month_range.format(names[0], names[-1])
    return words.in_months.format(_listed(words, names))

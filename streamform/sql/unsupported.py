"""What the SQL of a model can't contain, by name, with what to write instead."""

from __future__ import annotations

CLAUSES: dict[str, tuple[str, str]] = {
    "joins": ("a join", "join downstream of the sinks, or declare the joined data as one source"),
    "laterals": ("LATERAL", "write the expression in the select list"),
    "order": ("ORDER BY", "a changelog has no final order; sort where it is read"),
    "limit": ("LIMIT", "a changelog has no end; filter with WHERE"),
    "offset": ("OFFSET", "a changelog has no end; filter with WHERE"),
    "qualify": ("QUALIFY", "filter with WHERE or HAVING"),
    "windows": ("WINDOW", "declare window: in streamform.yml"),
    "into": ("INTO", "declare a sink in streamform.yml"),
    "sample": ("TABLESAMPLE", "filter with WHERE"),
    "pivots": ("PIVOT", "write one aggregate for each value"),
    "locks": ("FOR UPDATE", "remove it"),
    "connect": ("CONNECT BY", "write the steps as models"),
    "cluster": ("CLUSTER BY", "remove it"),
    "distribute": ("DISTRIBUTE BY", "remove it"),
    "sort": ("SORT BY", "remove it"),
    "match": ("MATCH_RECOGNIZE", "write the steps as models"),
    "prewhere": ("PREWHERE", "use WHERE"),
    "hint": ("a hint", "declare retention and parallelism in streamform.yml"),
    "kind": ("SELECT AS", "name the outputs with AS"),
}
"""Arguments of a SELECT that have no meaning here."""

EXPRESSIONS: dict[str, tuple[str, str]] = {
    "Window": ("a window function", "group by the columns, or declare window: in streamform.yml"),
    "ILike": ("ILIKE", "write UPPER(a) LIKE '..'"),
    "Filter": ("FILTER here", "use it with an aggregate in SELECT or HAVING"),
    "Subquery": ("a subquery as a value", "write the subquery as a model"),
    "Select": ("a subquery as a value", "write the subquery as a model"),
    "Exists": ("EXISTS", "write the subquery as a model"),
    "SimilarTo": ("SIMILAR TO", "use LIKE or REGEXP_EXTRACT"),
    "Distinct": ("DISTINCT here", "use it in SELECT DISTINCT or inside an aggregate"),
    "AtTimeZone": ("AT TIME ZONE", "timestamps are UTC"),
    "Star": ("* here", "use * alone in the select list or in COUNT(*)"),
    "Placeholder": ("a placeholder", "write the value"),
    "Parameter": ("a parameter", "write the value"),
    "Struct": ("braces", "templates are not rendered; write plain SQL"),
    "Array": ("an array", "write one column for each element"),
    "Bracket": ("an index", "write one column for each element"),
    "Tuple": ("a row value", "compare the columns one by one"),
    "Rollup": ("ROLLUP", "write one model for each grouping"),
    "Cube": ("CUBE", "write one model for each grouping"),
    "GroupingSets": ("GROUPING SETS", "write one model for each grouping"),
    "Dot": ("a nested field", "declare the field as a column of the source"),
}
"""Expressions that are recognised and refused."""

_CLOCK = "its result depends on when it runs, so a replay would give other rows; use an event's own time"

_RANDOM = "its result differs from run to run, so a replay would give other rows"

FUNCTIONS_REFUSED: dict[str, str] = {
    "NOW": _CLOCK,
    "CURRENT_TIMESTAMP": _CLOCK,
    "CURRENT_DATE": _CLOCK,
    "CURRENT_TIME": _CLOCK,
    "LOCALTIME": _CLOCK,
    "LOCALTIMESTAMP": _CLOCK,
    "PROCTIME": _CLOCK,
    "UNIX_TIMESTAMP": _CLOCK,
    "RAND": _RANDOM,
    "RANDOM": _RANDOM,
    "UUID": _RANDOM,
    "DATE_TRUNC": "write FLOOR(a TO DAY)",
    "TO_TIMESTAMP": "write CAST(a AS TIMESTAMP)",
    "TO_DATE": "write CAST(a AS DATE)",
    "LENGTH": "write CHAR_LENGTH(a)",
    "LEN": "write CHAR_LENGTH(a)",
    "SQRT": "its last digit depends on the machine",
    "EXP": "its last digit depends on the machine",
    "LN": "its last digit depends on the machine",
    "LOG": "its last digit depends on the machine",
    "STDDEV_POP": "its last digits depend on the order of the rows; aggregate SUM(a), SUM(a * a) and COUNT(a)",
    "GEN_RANDOM_UUID": _RANDOM,
    "RAND_INTEGER": _RANDOM,
}
"""Functions that are refused for a reason of their own."""

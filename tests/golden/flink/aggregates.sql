SET 'table.local-time-zone' = 'UTC';

SET 'table.exec.sink.not-null-enforcer' = 'ERROR';

SET 'table.exec.sink.upsert-materialize' = 'NONE';

SET 'table.optimizer.agg-phase-strategy' = 'ONE_PHASE';

SET 'execution.checkpointing.interval' = '10000 ms';

CREATE TEMPORARY TABLE `e/raw` (
  `at` TIMESTAMP(3),
  `b` BOOLEAN,
  `i` INT,
  `k` BIGINT,
  `s` STRING,
  `v` DECIMAL(12, 2),
  WATERMARK FOR `at` AS `at` - INTERVAL '10' SECOND
) WITH (
  'connector' = 'kafka',
  'topic' = 'events',
  'properties.bootstrap.servers' = '${BROKERS}',
  'properties.group.id' = 'streamform-shop-prod-m',
  'properties.isolation.level' = 'read_committed',
  'scan.startup.mode' = 'earliest-offset',
  'format' = 'json',
  'json.timestamp-format.standard' = 'ISO-8601'
);

CREATE TEMPORARY VIEW `e` AS
SELECT
  `at`, `b`, `i`, `k`, `s`, `v`
FROM `e/raw`
WHERE (CURRENT_WATERMARK(`at`) IS NULL OR `at` >= CURRENT_WATERMARK(`at`));

CREATE TEMPORARY VIEW `m` AS
SELECT
  `k`,
  `sum(i)` AS `a`,
  `avg(v)` AS `b`,
  `count(DISTINCT s)` AS `c`,
  `count(*) FILTER (WHERE b)` AS `d`,
  `max(at)` AS `e`
FROM (
  SELECT /*+ STATE_TTL('i' = '604800000 ms') */
    `k`,
    SUM(CAST(`i` AS BIGINT)) AS `sum(i)`,
    CAST(AVG(`v`) AS DECIMAL(38, 6)) AS `avg(v)`,
    COUNT(DISTINCT `s`) AS `count(DISTINCT s)`,
    COUNT(*) FILTER (WHERE `b`) AS `count(*) FILTER (WHERE b)`,
    MAX(`at`) AS `max(at)`,
    COUNT(*) AS `count(*)`
  FROM `e` AS `i`
  WHERE (`k` IS NOT NULL)
  GROUP BY `k`
) AS `i`
WHERE (`count(*)` > CAST(2 AS BIGINT));

CREATE TEMPORARY TABLE `m/sink` (
  `k` BIGINT,
  `a` BIGINT,
  `b` DECIMAL(38, 6),
  `c` BIGINT,
  `d` BIGINT,
  `e` TIMESTAMP(3),
  PRIMARY KEY (`k`) NOT ENFORCED
) WITH (
  'connector' = 'upsert-kafka',
  'topic' = 'm-out',
  'properties.bootstrap.servers' = '${BROKERS}',
  'key.format' = 'json',
  'key.json.timestamp-format.standard' = 'ISO-8601',
  'key.json.encode.decimal-as-plain-number' = 'true',
  'value.format' = 'json',
  'value.json.timestamp-format.standard' = 'ISO-8601',
  'value.json.encode.decimal-as-plain-number' = 'true'
);

SET 'pipeline.name' = 'streamform/shop/prod/m';

EXECUTE STATEMENT SET
BEGIN
INSERT INTO `m/sink` (`k`, `a`, `b`, `c`, `d`, `e`)
SELECT `k`, `a`, `b`, `c`, `d`, `e`
FROM `m`;
END;

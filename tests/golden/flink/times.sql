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
  CAST((`at` + INTERVAL '0 00:16:40.000' DAY(3) TO SECOND(3)) AS TIMESTAMP(3)) AS `a`,
  CAST(FLOOR(`at` TO DAY) AS DATE) AS `d`,
  CAST(FLOOR(`at` TO HOUR) AS TIMESTAMP(3)) AS `h`
FROM `e` AS `i`
WHERE (`at` > CAST(TIMESTAMP '2026-01-01 00:00:00' AS TIMESTAMP(3)));

CREATE TEMPORARY TABLE `m/sink` (
  `a` TIMESTAMP(3),
  `d` DATE,
  `h` TIMESTAMP(3)
) WITH (
  'connector' = 'kafka',
  'topic' = 'm-out',
  'properties.bootstrap.servers' = '${BROKERS}',
  'format' = 'json',
  'json.timestamp-format.standard' = 'ISO-8601',
  'json.encode.decimal-as-plain-number' = 'true'
);

SET 'pipeline.name' = 'streamform/shop/prod/m';

EXECUTE STATEMENT SET
BEGIN
INSERT INTO `m/sink` (`a`, `d`, `h`)
SELECT `a`, `d`, `h`
FROM `m`;
END;

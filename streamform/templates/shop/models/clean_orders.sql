-- Orders that count: they belong to a customer, have an amount, and were not placed by a test.
SELECT order_id, customer_id, amount, status, ordered_at
FROM source('orders')
WHERE customer_id IS NOT NULL
  AND amount IS NOT NULL
  AND status <> 'test'

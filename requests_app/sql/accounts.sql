-- Clients and their keys. A key is issued in the statement that locks its effective account (design 5.5.2).

-- name: create_account
INSERT INTO client_account (name) VALUES (%(name)s) ON CONFLICT (name) DO NOTHING RETURNING id, status;

-- name: set_account_status
UPDATE client_account SET status = %(status)s WHERE name = %(name)s AND status <> %(status)s RETURNING id;

-- name: set_operator
UPDATE client_account SET operator = %(operator)s WHERE name = %(name)s AND operator <> %(operator)s RETURNING id;

-- name: lock_operator
SELECT status = 'active' AND operator AS allowed FROM client_account WHERE id = %(id)s FOR SHARE;

-- name: account_by_name
SELECT id, name, status, created_at FROM client_account WHERE name = %(name)s;

-- name: list_accounts
SELECT a.id, a.name, a.status, a.operator, a.created_at, count(k.id) FILTER (WHERE k.revoked_at IS NULL) AS valid_keys
  FROM client_account a
  LEFT JOIN api_key k ON k.account_id = a.id
 GROUP BY a.id
 ORDER BY a.id;

-- name: issue_key
WITH owner AS MATERIALIZED (
  SELECT id FROM client_account WHERE name = %(name)s AND status = 'active' FOR SHARE
)
INSERT INTO api_key (account_id, prefix, digest)
SELECT id, %(prefix)s, %(digest)b FROM owner
RETURNING id, account_id;

-- name: revoke_keys
UPDATE api_key k
   SET revoked_at = clock_timestamp()
  FROM client_account a
 WHERE a.id = k.account_id AND a.name = %(name)s AND k.revoked_at IS NULL
   AND (%(prefix)s::text IS NULL OR k.prefix = %(prefix)s::text)
   AND k.prefix IS DISTINCT FROM %(keep)s::text
RETURNING k.prefix;

-- name: valid_key
SELECT k.id
  FROM api_key k JOIN client_account a ON a.id = k.account_id
 WHERE k.digest = %(digest)b AND k.revoked_at IS NULL AND a.status = 'active' AND a.name = %(name)s;

-- inbox: removes claims that are older than any window. Index: outbox_inbox_claims_ended.
DELETE FROM outbox_inbox_claims
 WHERE coalesce(done_at, expires_at) <= strftime('%Y-%m-%dT%H:%M:%f000Z', {{arg .Now}}, '-' || (SELECT coalesce(max(keep), 1296000000000) / 1000000.0 FROM outbox_inbox_consumers) || ' seconds')

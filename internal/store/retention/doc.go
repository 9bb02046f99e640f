// Package retention removes from outbox tables what was delivered long ago, and from job_dlq what
// was replayed long ago. It archives them in a table or in compressed files, or deletes them.
//
// It guarantees that nothing undelivered and nothing dead is removed. A row leaves its table only
// in the transaction that puts it into the archive table, or after the file that holds it was
// synced and had its final name. One process at a time works on a table. The work goes in bounded
// batches with a pause as long as the batch took between them. It ends when its context does,
// within one statement.
//
// It does not guarantee that a row is in one file only. A crash between file and delete leaves it
// in both, and the next run writes it into another file: readers tell copies by table, id, position
// and row. Nor that a row leaves on the minute. Each run walks the table in an order in which rows
// usually grow old, which costs only what is due. What that order misses (ids that tell no time,
// events delivered late, tables without such an index) waits for the next sweep. A sweep reads the
// whole table, once in a seventh of the retention.
package retention

// A table of many rows: columns by TanStack Table, and of long lists only the rows that are in sight.
import {
  flexRender,
  getCoreRowModel,
  useReactTable,
  type ColumnDef,
  type RowSelectionState,
} from '@tanstack/react-table'
import { useWindowVirtualizer } from '@tanstack/react-virtual'
import { useRef } from 'react'
import { Scroll } from './basics'

export interface TableProps<T> {
  label: string
  rows: T[]
  columns: ColumnDef<T>[]
  id: (row: T) => string
  selected?: RowSelectionState
  onSelect?: (next: RowSelectionState) => void
}

export function DataTable<T>({ label, rows, columns, id, selected, onSelect }: TableProps<T>) {
  const body = useRef<HTMLTableSectionElement>(null)
  const table = useReactTable({
    data: rows,
    columns,
    getRowId: id,
    getCoreRowModel: getCoreRowModel(),
    enableRowSelection: Boolean(onSelect),
    state: { rowSelection: selected ?? {} },
    onRowSelectionChange: change => onSelect?.(typeof change === 'function' ? change(selected ?? {}) : change),
  })
  const virtual = useWindowVirtualizer({
    count: rows.length,
    estimateSize: () => 45,
    overscan: 30,
    scrollMargin: body.current?.offsetTop ?? 0,
  })
  const seen = virtual.getVirtualItems()
  const above = seen.length ? seen[0].start - virtual.options.scrollMargin : 0
  const below = seen.length ? virtual.getTotalSize() - (seen[seen.length - 1].end - virtual.options.scrollMargin) : 0
  const all = table.getRowModel().rows
  return (
    <Scroll label={label}>
      <table className="grid-table">
        <thead>
          {table.getHeaderGroups().map(group => (
            <tr key={group.id}>
              {onSelect && (
                <th scope="col" className="w-8">
                  <input
                    type="checkbox"
                    aria-label="Select all that are shown"
                    checked={rows.length > 0 && table.getIsAllRowsSelected()}
                    onChange={table.getToggleAllRowsSelectedHandler()}
                  />
                </th>
              )}
              {group.headers.map(h => (
                <th key={h.id} scope="col">
                  {flexRender(h.column.columnDef.header, h.getContext())}
                </th>
              ))}
            </tr>
          ))}
        </thead>
        <tbody ref={body}>
          {above > 0 && (
            <tr aria-hidden="true">
              <td style={{ height: above, padding: 0 }} />
            </tr>
          )}
          {seen.map(item => {
            const row = all[item.index]
            return (
              row && (
                <tr key={row.id} data-index={item.index} ref={virtual.measureElement}>
                  {onSelect && (
                    <td>
                      <input
                        type="checkbox"
                        aria-label={`Select ${row.id}`}
                        checked={row.getIsSelected()}
                        onChange={row.getToggleSelectedHandler()}
                      />
                    </td>
                  )}
                  {row.getVisibleCells().map(cell => (
                    <td key={cell.id}>{flexRender(cell.column.columnDef.cell, cell.getContext())}</td>
                  ))}
                </tr>
              )
            )
          })}
          {below > 0 && (
            <tr aria-hidden="true">
              <td style={{ height: below, padding: 0 }} />
            </tr>
          )}
        </tbody>
      </table>
    </Scroll>
  )
}

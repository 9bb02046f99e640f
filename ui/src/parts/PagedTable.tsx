// A list that comes page by page: its rows, or why there are none, and the next page on demand.
import type { InfiniteData, UseInfiniteQueryResult } from '@tanstack/react-query'
import { useMemo, type ReactNode } from 'react'
import type { Page } from '../api/types'
import { Failure, Loading } from './basics'
import { DataTable, type TableProps } from './DataTable'

type List<T> = UseInfiniteQueryResult<InfiniteData<Page<T>>>

export function useRows<T>(list: List<T>): T[] {
  return useMemo(() => list.data?.pages.flatMap(p => p.items ?? []) ?? [], [list.data])
}

export function PagedTable<T>({ list, empty, ...table }: TableProps<T> & { list: List<T>; empty: ReactNode }) {
  return (
    <>
      {list.isError ? (
        <Failure error={list.error} retry={() => void list.refetch()} />
      ) : list.isPending ? (
        <Loading what={table.label.toLowerCase()} />
      ) : table.rows.length ? (
        <DataTable {...table} />
      ) : (
        empty
      )}
      {list.hasNextPage && (
        <div className="border-t p-3 text-center">
          <button
            type="button"
            className="button"
            disabled={list.isFetchingNextPage}
            onClick={() => void list.fetchNextPage()}
          >
            {list.isFetchingNextPage ? 'Loading …' : 'Load more'}
          </button>
        </div>
      )}
    </>
  )
}

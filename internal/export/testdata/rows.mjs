// Prints a Parquet file read by hyparquet: first its columns, then its rows, each as one JSON array.
import { asyncBufferFromFile, parquetMetadataAsync, parquetSchema, parquetReadObjects } from 'hyparquet'

const file = await asyncBufferFromFile(process.argv[2])
const metadata = await parquetMetadataAsync(file)
const columns = parquetSchema(metadata).children.map(c => c.element.name)
const write = row => new Promise(done => process.stdout.write(row + '\n', done))
const json = v => typeof v === 'bigint' ? v.toString() : JSON.stringify(v)
await write(JSON.stringify(columns))
let rowStart = 0
for (const group of metadata.row_groups) {
  const rowEnd = rowStart + Number(group.num_rows)
  const rows = await parquetReadObjects({ file, metadata, rowStart, rowEnd })
  await write(rows.map(row => '[' + columns.map(c => json(row[c] ?? null)).join(',') + ']').join('\n'))
  rowStart = rowEnd
}

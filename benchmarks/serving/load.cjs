// One run of autocannon, from JSON on standard input: {module, url, connections, seconds, requests}.
// Prints {answered, statuses, errors, p50, p99, longest, gap}: milliseconds of answers with status 2xx, and the longest
// time without one.
const { performance } = require('node:perf_hooks')

const settings = JSON.parse(require('node:fs').readFileSync(0, 'utf8'))
const autocannon = require(settings.module)
const times = []
const statuses = {}
let gap = 0
let last = performance.now()

const run = autocannon({
  url: settings.url,
  connections: settings.connections,
  duration: settings.seconds,
  timeout: 60,
  requests: settings.requests
}, (error, result) => {
  if (error) throw error
  times.sort((a, b) => a - b)
  const at = (share) => times.length ? times[Math.min(times.length - 1, Math.floor(share * times.length))] : null
  console.log(JSON.stringify({
    answered: times.length,
    statuses,
    errors: result.errors,
    p50: at(0.5),
    p99: at(0.99),
    longest: at(1),
    gap,
    seconds: result.duration
  }))
})
run.on('response', (client, status, bytes, milliseconds) => {
  statuses[status] = (statuses[status] || 0) + 1
  if (status < 200 || status > 299) return
  times.push(milliseconds)
  const now = performance.now()
  gap = Math.max(gap, now - last)
  last = now
})

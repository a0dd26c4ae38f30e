// Tells what stands in the column under the pointer, or under a mark that the arrow keys move. Without a script the charts say the same.
'use strict'
const data = JSON.parse(document.getElementById('columns').textContent)
const ms = ns => (ns / 1e6).toFixed(3) + ' ms'
const clock = s => s < 60 ? s.toFixed(2) + ' s' : s < 3600 ? Math.floor(s / 60) + ':' + (s % 60).toFixed(1).padStart(4, '0')
  : Math.floor(s / 3600) + ':' + String(Math.floor(s / 60) % 60).padStart(2, '0') + ':' + (s % 60).toFixed(0).padStart(2, '0')
const n = data.columns.length

function words(at) {
  const c = data.columns[at], parts = [clock(data.spanNs / 1e9 * at / n) + ' to ' + clock(data.spanNs / 1e9 * (at + 1) / n)]
  parts.push(!c.f ? 'no frame time' : c.f[0] === 1 ? '1 frame, ' + ms(c.f[1]) : c.f[0] + ' frames, ' + ms(c.f[1]) + ' to ' + ms(c.f[2]))
  if (c.w) parts.push(c.w + ' without a frame time')
  if (c.o) parts.push('longest overrun ' + ms(c.o))
  if (c.p) parts.push('P95 ' + ms(c.p[0]) + (c.p[1] > c.p[0] ? ' to ' + ms(c.p[1]) : ''))
  if (c.q) parts.push('P95 null: ' + c.q)
  return parts.join(', ')
}

for (const figure of document.querySelectorAll('[data-readout]')) {
  const chart = figure.querySelector('svg.time'), output = document.createElement('output')
  const pointer = document.createElementNS('http://www.w3.org/2000/svg', 'line')
  let at = 0
  const show = column => {
    at = Math.max(0, Math.min(n - 1, column))
    const x = data.left + (at + 0.5) * data.width / n
    pointer.setAttribute('x1', x)
    pointer.setAttribute('x2', x)
    pointer.removeAttribute('visibility')
    output.textContent = words(at)
  }
  const hide = () => {
    pointer.setAttribute('visibility', 'hidden')
    output.textContent = ''
  }
  pointer.setAttribute('class', 'pointer')
  pointer.setAttribute('y2', chart.viewBox.baseVal.height)
  hide()
  chart.append(pointer)
  figure.append(output)
  output.setAttribute('aria-live', 'polite')
  chart.setAttribute('tabindex', '0')
  chart.addEventListener('pointermove', event => {
    const box = chart.getBoundingClientRect()
    const x = (event.clientX - box.left) / box.width * data.pictureWidth
    if (x < data.left || x > data.left + data.width) hide()
    else show(Math.floor((x - data.left) / data.width * n))
  })
  chart.addEventListener('pointerleave', hide)
  chart.addEventListener('blur', hide)
  chart.addEventListener('keydown', event => {
    const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -20, PageDown: 20, Home: -n, End: n }[event.key]
    if (!step) return
    event.preventDefault()
    show(at + step)
  })
}

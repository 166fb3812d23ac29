// Looks at the page: what is visible in it, one element a line, each that can be acted on with a number. Evaluates to {task, lines, elements}.
(() => {
  const refs = (window.agentflyRefs = []), lines = [], elements = [];
  const round = Math.round, inputs = new Set(['INPUT', 'TEXTAREA', 'SELECT', 'BUTTON', 'A']);
  const skip = new Set(['SCRIPT', 'STYLE', 'NOSCRIPT', 'TEMPLATE', 'OPTION', 'OPTGROUP', 'DEFS']), ids = new Set(['reward-display', 'click-canvas', 'sync-task-cover', 'query']);
  const shapes = new Set(['circle', 'rect', 'ellipse', 'polygon', 'path', 'line', 'text']);
  const squash = (s, n) => { s = (s || '').replace(/\s+/g, ' ').trim(); return s.length > n ? s.slice(0, n) + '…' : s; };
  const own = (e) => squash([...e.childNodes].filter((c) => c.nodeType === 3).map((c) => c.data).join(' '), 400);
  const roleOf = (e, tag) => {
    if (tag === 'INPUT') return ({ checkbox: 'checkbox', radio: 'radio', button: 'button', submit: 'button', image: 'button', range: 'slider', password: 'password' })[e.type] || 'textbox';
    return { TEXTAREA: 'textbox', SELECT: 'list', BUTTON: 'button', A: 'link', IMG: 'image', TH: 'cell', TD: 'cell', LI: 'item', LABEL: 'label' }[tag] || (shapes.has(tag) ? tag : e.getAttribute('role') || 'text');
  };
  const walk = (e) => {
    const tag = e.tagName.includes(':') ? e.tagName.split(':')[1] : e.tagName;
    if (skip.has(tag) || ids.has(e.id)) return;
    const box = e.getBoundingClientRect(), style = getComputedStyle(e);
    if (style.display === 'none' || style.visibility === 'hidden' || style.opacity === '0') return;
    const text = own(e), leaf = e.children.length === 0, shape = shapes.has(tag);
    const label = e.labels && e.labels.length ? squash(e.labels[0].textContent, 100) : '';
    const named = text || e.title || e.alt || e.placeholder || e.getAttribute('aria-label') || label;
    const shown = inputs.has(tag) || shape || tag === 'IMG' || text !== '' || (leaf && (e.onclick || style.cursor === 'pointer' || style.backgroundImage !== 'none'));
    if (shown && box.width > 0 && box.height > 0 && refs.length < 400) {
      const role = roleOf(e, tag), x = round(box.left + box.width / 2), y = round(box.top + box.height / 2), n = refs.push(e);
      const name = squash(role === 'button' && !text ? e.value || e.textContent || named : tag === 'A' || tag === 'BUTTON' ? e.textContent : named, 400);
      let line = `[${n}] ${role}` + (name ? ` ${JSON.stringify(name)}` : '');
      const it = { ref: n, role, name, x, y, checked: !!e.checked, value: role === 'checkbox' || role === 'radio' ? '' : String(e.value === undefined ? '' : e.value), options: [] };
      if (role === 'textbox' || role === 'password' || role === 'slider') line += ` value=${JSON.stringify(squash(e.value, 200))}`;
      if (role === 'list') { it.options = [...e.options].map((o) => squash(o.text, 100)); line += ` value=${JSON.stringify(it.options[e.selectedIndex] || '')} options=${JSON.stringify(it.options)}`; }
      if (e.checked) line += ' checked';
      if (e.disabled) line += ' disabled';
      if (document.activeElement === e) line += ' focused';
      if (shape) line += ` ${e.getAttribute('fill') || style.fill} ${round(box.width)}x${round(box.height)}`;
      elements.push(it);
      lines.push(`${line} (${x},${y})`);
    }
    for (const c of e.children) if (tag !== 'A' && tag !== 'BUTTON' && tag !== 'SELECT') walk(c);
  };
  for (const c of document.body.children) walk(c);
  return { task: core.getUtterance(), lines, elements, done: WOB_DONE_GLOBAL, raw: Number(WOB_RAW_REWARD_GLOBAL) || 0, reason: WOB_REWARD_REASON === null ? '' : String(WOB_REWARD_REASON) };
})()

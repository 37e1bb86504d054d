"""How pages look, and the little that they do: tables sort, and a button changes between light and dark."""

_LIGHT = """
  --back: #f6f7f9; --card: #ffffff; --ink: #1b2330; --soft: #566072; --line: #dde2ea; --link: #1f5c99;
  --head: #eef1f5; --good: #17633c; --good-back: #dff3e7; --bad: #9a2b20; --bad-back: #fbe5e2; color-scheme: light;
"""
_DARK = """
  --back: #12161c; --card: #1b212a; --ink: #e6eaf0; --soft: #a5b0c0; --line: #333c49; --link: #8bbcf0;
  --head: #252d38; --good: #8fdcb0; --good-back: #173828; --bad: #f5aca3; --bad-back: #47201c; color-scheme: dark;
"""

CSS = f"""
:root {{ {_LIGHT} }}
:root[data-theme="dark"] {{ {_DARK} }}
.in-dark {{ display: none; }}
:root[data-theme="dark"] .in-dark {{ display: inline; }}
:root[data-theme="dark"] .in-light {{ display: none; }}
@media (prefers-color-scheme: dark) {{
  :root:not([data-theme="light"]) {{ {_DARK} }}
  :root:not([data-theme="light"]) .in-dark {{ display: inline; }}
  :root:not([data-theme="light"]) .in-light {{ display: none; }}
}}
* {{ box-sizing: border-box; }}
html {{ -webkit-text-size-adjust: 100%; }}
body {{ margin: 0; background: var(--back); color: var(--ink); overflow-wrap: anywhere;
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "DejaVu Sans", sans-serif; }}
header, main, footer {{ max-width: 60rem; margin: 0 auto; padding: 0 1rem; }}
header {{ display: flex; gap: 1rem; align-items: flex-start; padding-top: 1.5rem; }}
header > div {{ flex: 1; min-width: 0; }}
h1 {{ font-size: 1.75rem; line-height: 1.2; margin: 0 0 .25rem; }}
h2 {{ font-size: 1.25rem; line-height: 1.3; margin: 0 0 .6rem; }}
h3 {{ font-size: 1.05rem; margin: 1.4rem 0 .4rem; }}
p {{ margin: .5rem 0; }}
a {{ color: var(--link); }}
.soft, figcaption, caption, footer {{ color: var(--soft); }}
nav ul {{ display: flex; flex-wrap: wrap; gap: .25rem 1rem; list-style: none; margin: .75rem 0 0; padding: 0;
  font-size: .9rem; }}
section {{ background: var(--card); border: 1px solid var(--line); border-radius: .6rem; padding: 1rem 1.25rem;
  margin: 1rem 0; scroll-margin-top: .5rem; }}
code {{ font: .9em ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; background: var(--head);
  border-radius: .25rem; padding: .05em .3em; }}
button {{ font: inherit; color: inherit; }}
#theme {{ background: var(--card); border: 1px solid var(--line); border-radius: .5rem; padding: .3rem .7rem;
  cursor: pointer; white-space: nowrap; }}
:focus-visible {{ outline: 2px solid var(--link); outline-offset: 2px; }}
.tiles {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr)); gap: .6rem; margin: .8rem 0 0; }}
.tiles div {{ background: var(--head); border-radius: .5rem; padding: .5rem .75rem; }}
.tiles dt, .facts dt {{ color: var(--soft); font-size: .85rem; }}
.tiles dd {{ margin: 0; font-size: 1.3rem; font-weight: 600; line-height: 1.3; }}
.facts {{ margin: .5rem 0; }}
.facts div {{ display: grid; grid-template-columns: minmax(7rem, 13rem) 1fr; gap: .1rem 1rem; padding: .3rem 0;
  border-top: 1px solid var(--line); }}
.facts div:first-child {{ border-top: 0; }}
.facts dd {{ margin: 0; min-width: 0; }}
.badge {{ display: inline-block; border-radius: 1rem; padding: .05rem .65rem; font-size: .9rem; font-weight: 600;
  white-space: nowrap; }}
.good {{ color: var(--good); background: var(--good-back); }}
.bad {{ color: var(--bad); background: var(--bad-back); }}
figure {{ margin: .8rem auto; max-width: 40rem; text-align: center; }}
figure.wide {{ max-width: none; }}
figure img {{ max-width: 100%; height: auto; }}
figure img.card {{ background: #ffffff; padding: .5rem; border-radius: .4rem; }}
figcaption {{ font-size: .9rem; }}
.scroll {{ overflow: auto; max-height: 32rem; margin: .8rem 0; border: 1px solid var(--line); border-radius: .4rem; }}
table {{ border-collapse: collapse; width: 100%; font-size: .9rem; overflow-wrap: normal; }}
caption {{ text-align: left; padding: .4rem .6rem; caption-side: bottom; }}
th, td {{ padding: .35rem .6rem; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); }}
td {{ max-width: 34rem; min-width: 3rem; }}
th {{ min-width: 4.5rem; position: sticky; top: 0; background: var(--head); font-weight: 600; vertical-align: bottom; }}
th button {{ background: none; border: 0; padding: 0; font-weight: 600; cursor: pointer; text-align: inherit; }}
th button::after {{ content: "\\2195"; opacity: .4; padding-left: .3em; }}
th[aria-sort="ascending"] button::after {{ content: "\\2191"; opacity: 1; }}
th[aria-sort="descending"] button::after {{ content: "\\2193"; opacity: 1; }}
.n {{ text-align: right; font-variant-numeric: tabular-nums; }}
td.long {{ min-width: 12rem; }}
td.n {{ white-space: nowrap; }}
.tight {{ white-space: nowrap; }}
.claim {{ border-top: 1px solid var(--line); padding: .6rem 0; }}
.claim p {{ margin: .2rem 0; }}
details {{ margin: .6rem 0; }}
summary {{ cursor: pointer; color: var(--link); }}
footer {{ font-size: .85rem; padding-bottom: 2rem; }}
@media (max-width: 36rem) {{
  h1 {{ font-size: 1.4rem; }}
  section {{ padding: .8rem .8rem; margin: .75rem -.4rem; }}
  .facts div {{ grid-template-columns: 1fr; }}
  .tiles {{ grid-template-columns: 1fr 1fr; }}
  .tiles dd {{ font-size: 1.1rem; }}
}}
@media print {{ .scroll {{ max-height: none; overflow: visible; }} #theme, nav {{ display: none; }} }}
"""

SCRIPT = r"""
"use strict";
(() => {
  const start = /^[<>~≈]?\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)(?![\w.-])/i;
  const word = /^([+-]?)inf(?:inity)?$/i;
  const blank = /^(?:nan|[-–]|)$/i;
  const text = cell => (cell.dataset.value ?? cell.textContent).trim().replace(/−/g, "-");
  const value = shown => {
    const infinite = word.exec(shown);
    if (infinite) return infinite[1] === "-" ? -Infinity : Infinity;
    const found = start.exec(shown.replace(/,(?=\d{3})/g, ""));
    return found ? Number(found[1]) : NaN;
  };
  const compare = (a, b, numeric, sign) => {
    if (blank.test(a) || blank.test(b)) return blank.test(a) - blank.test(b);
    if (!numeric) return sign * a.localeCompare(b, undefined, {numeric: true});
    const [x, y] = [value(a), value(b)];
    return x === y ? 0 : sign * (x < y ? -1 : 1);
  };
  const sort = header => {
    const table = header.closest("table"), body = table.tBodies[0];
    const up = header.getAttribute("aria-sort") !== "ascending";
    const rows = [...body.rows].map(row => ({row, key: text(row.cells[header.cellIndex])}));
    const numeric = rows.every(({key}) => blank.test(key) || !Number.isNaN(value(key)));
    rows.sort((a, b) => compare(a.key, b.key, numeric, up ? 1 : -1));
    for (const other of table.tHead.rows[0].cells) other.setAttribute("aria-sort", "none");
    header.setAttribute("aria-sort", up ? "ascending" : "descending");
    body.append(...rows.map(({row}) => row));
  };
  for (const button of document.querySelectorAll("table.sortable th button"))
    button.addEventListener("click", () => sort(button.parentElement));
  const root = document.documentElement, toggle = document.getElementById("theme");
  const wish = matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (root.dataset.theme ?? (wish.matches ? "dark" : "light")) === "dark";
  const label = () => { toggle.textContent = dark() ? "☀ Light" : "☾ Dark"; };
  toggle.addEventListener("click", () => { root.dataset.theme = dark() ? "light" : "dark"; label(); });
  wish.addEventListener("change", label);
  label();
})();
"""

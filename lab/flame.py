# SPDX-License-Identifier: MIT
"""A flame graph as one HTML file: click or Enter to zoom, Escape for the whole, / and type to search. A frame too narrow for three
letters shows none."""

import html
import json


def tree(stacks):
    """{("a", "b"): n} as nested [name, total, children]."""
    root = ["all", 0, {}]
    for stack, count in stacks.items():
        node = root
        node[1] += count
        for name in stack:
            node = node[2].setdefault(name, [name, 0, {}])
            node[1] += count

    def plain(node):
        return [node[0], node[1], [plain(child) for child in sorted(node[2].values(), key=lambda c: c[0])]]
    return plain(root)


PAGE = """<!doctype html><html lang=en><meta charset=utf-8><title>%(title)s</title><style>
body{font:13px system-ui,sans-serif;margin:1em;background:#fff;color:#222}
#graph{position:relative;overflow:hidden}
.frame{position:absolute;height:17px;line-height:16px;box-sizing:border-box;border:solid #fff;border-width:0 1px 1px 0;overflow:hidden;
white-space:nowrap;text-overflow:ellipsis;padding:0 3px;cursor:pointer;color:#222}
.narrow{font-size:0;padding:0}.frame:focus-visible{outline:2px solid #1565c0;outline-offset:-2px}
.key{display:inline-block;width:1em;height:1em;vertical-align:-2px;margin:0 .3em 0 1em}
.found{outline:2px solid #6a1b9a;outline-offset:-2px}#detail{min-height:1.5em}
@media(prefers-color-scheme:dark){body{background:#161616;color:#ddd}.frame{border-color:#161616}}
</style><h1>%(title)s</h1><p><input id=search type=search placeholder='search' aria-label=search>
<button id=reset>whole graph</button> <span id=matched></span></p><p id=legend></p><div id=graph></div><p id=detail></p>
<script type='application/json' id=data>%(data)s</script><script>
const root=JSON.parse(document.getElementById('data').textContent),graph=document.getElementById('graph');
const colours={'guest user':'#f4b183','guest kernel':'#ffd966','hypervisor':'#9dc3e6','VMM':'#a9d18e','idle':'#d0cece'};
const NARROW=24,unit=%(unit)s,colour=%(colour)s;let zoomed=root,wanted='';
function depth(n){return 1+Math.max(0,...n[2].map(depth))}
function draw(){
  graph.textContent='';const path=pathTo(root,zoomed)||[root];
  let matched=0;graph.style.height=17*(path.length-1+depth(zoomed))+'px';
  path.slice(0,-1).forEach((n,i)=>frame(n,0,1,i,colourOf(path.slice(0,i+1))));
  (function put(n,x,y,hit,above){
    const here=hit||(wanted&&n[0].toLowerCase().includes(wanted));
    if(here&&!hit)matched+=n[1];
    frame(n,x,n[1]/zoomed[1],y,colourOf(above.concat([n])));
    let at=x;n[2].forEach(c=>{if(c[1]/zoomed[1]>0.0004)put(c,at,y+1,here,above.concat([n]));at+=c[1]/zoomed[1];});
  })(zoomed,0,path.length-1,false,path.slice(0,-1));
  document.getElementById('matched').textContent=wanted?(100*matched/zoomed[1]).toFixed(1)+' %% match':'';
}
function colourOf(path){
  if(path[path.length-1][0].endsWith('_[k]'))return colours['guest kernel'];
  for(const n of path)if(colours[n[0]])return colours[n[0]];
  return path.length>1?colour:'#e8e8e8';
}
function frame(n,x,w,y,colour){
  const f=document.createElement('div');f.className='frame';f.textContent=n[0];f.tabIndex=0;
  if(w*graph.clientWidth<NARROW)f.classList.add('narrow');
  f.style.cssText=`left:${100*x}%%;width:${100*w}%%;top:${17*y}px;background:${colour}`;
  if(wanted&&n[0].toLowerCase().includes(wanted))f.classList.add('found');
  f.onmouseenter=f.onfocus=()=>document.getElementById('detail').textContent=`${n[0]}: ${n[1].toLocaleString('en')} ${unit}, ${(100*n[1]/root[1]).toFixed(2)} %%`;
  f.onclick=()=>{zoomed=n;draw()};f.onkeydown=e=>{if(e.key=='Enter')f.onclick()};graph.append(f);
}
function pathTo(n,to){if(n===to)return[n];for(const c of n[2]){const p=pathTo(c,to);if(p)return[n,...p]}return null}
document.getElementById('search').oninput=e=>{wanted=e.target.value.toLowerCase();draw()};
const reset=document.getElementById('reset').onclick=()=>{zoomed=root;draw()};
document.onkeydown=e=>{if(e.key=='Escape')reset();
  if(e.key=='/'&&e.target.id!='search'){e.preventDefault();document.getElementById('search').focus()}};
window.onresize=draw;
const parts=Object.entries(colours).filter(([name])=>root[2].some(n=>n[0]==name));
(parts.length?parts:[['user',colour],['kernel',colours['guest kernel']]]).forEach(([name,paint])=>{
  const key=document.createElement('span');key.className='key';key.style.background=paint;
  document.getElementById('legend').append(key,name);});
document.getElementById('legend').prepend(`${root[1].toLocaleString('en')} ${unit}`);
draw();
</script></html>
"""


def script(value):
    """JSON that ends no <script>."""
    return json.dumps(value).replace("<", "\\u003c")


def page(title, stacks, unit="samples", colour="#e8e8e8"):
    """unit: what is counted; colour: of frames that are in no part of a VM's profile and do not end with _[k], the kernel's."""
    return PAGE % {"title": html.escape(title), "data": script(tree(stacks)), "unit": script(unit), "colour": script(colour)}

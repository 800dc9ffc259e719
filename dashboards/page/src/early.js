// In the head, before all else is parsed: asks for what the first picture shows; api.js takes the answers. What cannot
// be a run's name, escaped, asks nothing: it would be part of an address. Curves as model.js wants them.
const {hash} = location, run = "api/runs/" + hash.slice(1);
const wanted = !hash ? ["api/runs"] : !/^#[\w.:%-]+$/.test(hash) ? []
  : [run + "/now", run + "/series?points=1200&signal=loss,grad_norm,learning_rate"];
window.early = wanted.map((each) => fetch(each).then((answer) => answer.ok && answer.json()).catch(() => null));

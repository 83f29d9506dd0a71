// Standard JSON from stdin to stdout, through the compiler in node_modules.
const solc = require('solc');
let input = '';
process.stdin.on('data', (chunk) => (input += chunk));
process.stdin.on('end', () => process.stdout.write(solc.compile(input)));

#!/usr/bin/env node
/* Syntax of 2015 only: an old Node has to get as far as saying what it lacks. */
'use strict';
var fs = require('fs');
var path = require('path');
var url = require('url');

var version = process.versions.node.split('.').map(Number);
if (version[0] < 22 || (version[0] === 22 && version[1] < 19)) {
  var isCheckout = fs.existsSync(path.join(__dirname, '..', 'src'));
  console.error(
    'turnout needs Node.js 22.19 or newer; this is ' +
      process.version +
      (isCheckout
        ? '.\nRun it on the Node.js that npm ci installed: npx turnout … (in this folder), or npm run turnout -- …'
        : '.\nInstall a newer one, for example with nvm install 24, or from https://nodejs.org.'),
  );
  process.exit(1);
}

var built = path.join(__dirname, '..', 'dist', 'cli', 'main.js');
var source = path.join(__dirname, '..', 'src', 'cli', 'main.ts');
/* A checkout runs its sources, whatever was built from them before. */
import(url.pathToFileURL(fs.existsSync(source) ? source : built).href).catch(function (error) {
  console.error(error);
  process.exit(1);
});

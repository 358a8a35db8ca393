// @ts-check
import { start } from '../shell.js';

start();
